"""The lab's own extensions, one folder each. The rest of the package imports none of them.

``pyproject.toml`` registers them, in the same way as another package registers its extensions: see
``dtfm_lab.domain.extension``.
"""
