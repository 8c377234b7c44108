"""Networks as pictures: on the world map, as an abstract drawing, and as a matrix of links.

The map and the drawing can also show a plan, as coloured devices with lines between them.
"""
