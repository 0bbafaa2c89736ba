"""The Compare runs page: two to four runs over steps and over seconds, and their attention at the same step."""
