"""The checker that tests/conftest.py puts on every annotated call in core; an int passes where a float is asked."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
