"""Streamlit's server with a bound on all uploads together: `python -m lab.explorer.serving run app.py`.

For: lab.explorer.server, which starts it. Not for: settings. Streamlit has no setting for its store of
uploads, and a file may arrive before any page is drawn; so the store is replaced before the server begins.
"""

from __future__ import annotations

import streamlit.web.server.server as streamlit_server
from streamlit.web import cli

from lab.explorer.uploads import BoundedUploads


def main() -> None:
    """Run Streamlit's command line."""
    streamlit_server.MemoryUploadedFileManager = BoundedUploads  # type: ignore[attr-defined]
    cli.main(prog_name="streamlit")


if __name__ == "__main__":
    main()
