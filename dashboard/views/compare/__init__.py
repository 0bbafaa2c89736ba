"""Side by side: two to six mechanisms on the same tokens, their maps, their differences, and what they cost."""
