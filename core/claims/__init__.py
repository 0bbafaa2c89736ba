"""Classic statements about attention as experiments, each with a verdict computed from the data."""

import core.attention  # noqa: F401 - loads the plug-ins, which register claims; else they would while these load
