"""The page Masks: controls → a mask Choice → the same scores with and without it → picture, sentence, equation."""
