"""What the pages compute, a module a page: values in, a frozen result out, without Streamlit."""
