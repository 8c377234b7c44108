"""The lab's own extensions, one folder each; the rest of the package imports none of them.

``pyproject.toml`` names them as another package names its own: see ``dtfm_lab.domain.extension``.
"""
