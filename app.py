"""The explorer's entry: `streamlit run app.py`.

For: the page's frame and which pages there are. Not for: anything on them (lab.explorer).
"""

import streamlit as st

from lab.explorer import frame

st.set_page_config(page_title="twinbed", layout="wide", initial_sidebar_state="auto")
frame.show()
