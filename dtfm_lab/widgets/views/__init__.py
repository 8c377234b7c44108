"""The views of the lab, one folder each: Python, JavaScript and styles.

``tools/js/build.mjs`` bundles ``<name>/view.js`` and ``<name>/view.css`` into ``widgets/static``.
"""
