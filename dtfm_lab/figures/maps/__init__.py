"""Networks as pictures: on the world map, as an abstract drawing, and as a matrix of links.

Plans are drawn over both kinds of map, as coloured devices with lines between them.
"""
