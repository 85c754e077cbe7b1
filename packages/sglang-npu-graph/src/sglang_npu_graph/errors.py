"""Errors that end the engine's start."""


class PluginError(SystemExit):
    """The plugin was told to take part and cannot.

    SGLang logs any `Exception` of a plugin and goes on without it; only this ends its start, with
    the message on standard error.
    """


class OptionsError(PluginError):
    """The value of the environment variable is no JSON of known options."""


class EngineVersionError(PluginError):
    """The engine is of a version that was not tried: its private parts may have moved."""


class HookError(PluginError):
    """A hook did not take effect: the engine would run its own code in place of ours."""
