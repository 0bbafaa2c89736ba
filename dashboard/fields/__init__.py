"""What a person sets on a page: the controls, the link that holds them, and how a page is set back."""
