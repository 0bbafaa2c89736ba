"""Widgets, figures and state; the only package that knows Streamlit besides the pages."""
