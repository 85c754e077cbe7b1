"""Errors that end the engine's start."""


class PluginError(SystemExit):
    """The plugin is enabled but cannot work.

    SGLang logs any `Exception` of a plugin and continues without it. Only this error ends its
    start, with the message on standard error.
    """


class OptionsError(PluginError):
    """The value of the environment variable is no JSON of known options."""


class EngineVersionError(PluginError):
    """The engine is of a version that was not tried: its private parts may have moved."""


class HookError(PluginError):
    """A hook did not take effect: the engine would run its own code in place of ours."""
