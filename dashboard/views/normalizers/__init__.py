"""Normalizers: the same scores through each, and where the weight goes."""
