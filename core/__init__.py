"""Attention Lab's library: mechanisms, models, tasks and training in PyTorch, without any page."""

# Below attention_lab, where it lies in a wheel, it would be loaded a second time.
if __name__ != "core":
    raise ImportError("After `import attention_lab`, the lab's modules are those of `core`.")

from core.plugins import load_plugins  # noqa: E402

load_plugins()  # before any other module of core is imported, so that a plug-in meets none that is half imported
