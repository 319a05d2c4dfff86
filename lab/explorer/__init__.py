"""The pages of the Streamlit explorer; app.py is only its entry."""
