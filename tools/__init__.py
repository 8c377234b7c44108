"""What makes the lessons, the site, the pictures and a release. Nothing here is needed to use the lab.

Run each from the repository's root, such as ``python -m tools.notebooks``.

- ``notebooks`` runs the lessons in ``lessons/`` and writes ``notebooks/*.ipynb``, with ``still_pictures``;
  ``colab_tour`` then writes ``colab/tour.ipynb``.
- ``screenshots`` drives the lab in a browser and writes ``pictures/``, with ``moving``.
- ``website`` builds the site.
- ``address`` writes the repository's address to every file that names it. ``try_release`` and ``try_image`` build and
  install what is released, in ``environments`` of their own.
- ``js/`` builds the views (``make js``). ``labextension/`` is the card in JupyterLab's launcher, as the wheel installs
  it.
"""
