"""Static pictures of the views, SVG that stands alone, for readers without widgets."""
