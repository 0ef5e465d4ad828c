"""What lets a real verl run work without an accelerator; only tests need it.

verl 0.9 trains on a GPU platform and rolls out with vLLM or the like. ``platform`` calls the CPU a device, ``server``
answers with ``transformers``, and ``register`` makes both known to verl (``VERL_USE_EXTERNAL_MODULES``).
"""
