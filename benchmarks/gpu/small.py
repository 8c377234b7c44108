"""The model of rehearsals: every kind of layer, and hardly any work."""

from dtfm_lab.domain.job import gpt

SMALL = gpt(name="rehearsal", n_layers=4, d_model=32, n_heads=2, seq_len=32, vocab_size=256, tied=False)
"""60,000 parameters, on bytes of text."""
