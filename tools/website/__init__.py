"""The site: pages of docs/, executed lessons, and what is generated from the code. Sphinx builds it offline."""
