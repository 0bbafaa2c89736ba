"""The page Glossary: every word of the field that the pages use, and where to see it."""
