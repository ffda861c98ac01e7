"""The bell: an OpenAI-compatible door that wakes models.  A process of its own, which knows the platform by REST alone."""
