"""What changes the world.  A verb bears one name in every door."""

from .cancel import cancel
from .drain import drain, undrain
from .hold import hold, release
from .house import reload_policy, stop_daemon
from .models import report_inference, sleep, wake
from .note import note
from .retry import retry
from .submit import answer, prepared, submit
from .tokens import TokenChange, record_token
from .window import claim_window, release_window, renew_window

__all__ = [
    "TokenChange",
    "answer",
    "cancel",
    "claim_window",
    "drain",
    "hold",
    "note",
    "prepared",
    "record_token",
    "release",
    "release_window",
    "reload_policy",
    "renew_window",
    "report_inference",
    "retry",
    "sleep",
    "stop_daemon",
    "submit",
    "undrain",
    "wake",
]
