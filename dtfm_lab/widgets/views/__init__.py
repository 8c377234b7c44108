"""The views of the lab, one folder each: Python, JavaScript, styles and snapshot.

``js/build.mjs`` bundles ``<name>/view.js`` and ``<name>/view.css`` into ``widgets/static``.
"""
