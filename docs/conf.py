"""Settings of the documentation: `python -m sphinx -W docs docs/_build`."""

import os
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS / "_extensions")]
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Sphinx reads nothing outside of its folder, and symbolic links do not survive every copy.
shutil.copytree(ROOT / "notebooks", DOCS / "tutorials", dirs_exist_ok=True)
for copied in (DOCS / "tutorials").glob("*.ipynb"):  # which lie one folder nearer to the pages
    copied.write_text(copied.read_text().replace("](../docs/", "](../"))

from dpgen_jax.version import __version__  # noqa: E402  (the path is set above)

project = "dpgen_jax"
author = "the contributors of dpgen_jax"
copyright = author
version = release = __version__

extensions = [
    "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "myst_nb",
    "sphinx_copybutton", "api_pages", "command_help", "plain_docstrings",
]
exclude_patterns = ["_build", "_extensions", "jupyter_execute", "**.jinja"]
# Docstrings are plain text: what docutils makes of a quirk in one of them fails no build, nor does
# a word that is the name of several things.
suppress_warnings = ["docutils", "ref.python"]

autosummary_generate = False
autodoc_default_options = {"members": True, "undoc-members": True, "member-order": "bysource",
                           "no-value": True}  # of constants, some of which are whole tables
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
# A package that is installed for one feature alone is not needed to read about it.
autodoc_mock_imports = ["flwr", "h5py", "xgboost", "tensorboardX"]
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Guarantee", "Source"]
python_maximum_signature_line_length = 88

nb_execution_mode = "off"
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

highlight_language = "text"  # of blocks without a language: most are commands

html_theme = "furo"
html_title = f"dpgen_jax {version}"
html_static_path = ["_static"]
html_css_files = ["custom.css"]


def setup(app):
    """Links to notebooks, which lie beside the documentation, lead to their copies here."""
    app.connect("source-read", lambda app, page, source: source.__setitem__(
        0, source[0].replace("../notebooks/", "tutorials/")))
