"""Links to a branch."""

from __future__ import annotations

from pydantic import Field

from routes.wire.fields import Moment, Reply, Uuid, WireModel, example
from routes.wire.turns import TURN_ID

SHARE_ID = "b7c0e1d2-0000-4000-8000-000000000009"
_SHARE = {
    "share_id": SHARE_ID,
    "leaf": TURN_ID,
    "created_at": "2026-01-31T09:30:00.000000Z",
    "expires_at": "2026-02-07T09:30:00.000000Z",
    "passages": False,
}


class ShareBody(WireModel):
    """What POST /sessions/{session_id}/shares takes."""

    model_config = example({"expire_days": 7, "passages": False})

    leaf: Uuid | None = Field(None, description="The branch's last turn; absent: the session's newest.")
    expire_days: int = Field(7, ge=1, le=365, description="After how many days the link opens nothing.")
    passages: bool = Field(False, description="true: the passages that answers cite can be read, too.")


class Share(Reply):
    """A link."""

    share_id: str = Field(description="Its id, to take it back with.")
    leaf: str = Field(description="The last turn that it shows.")
    created_at: Moment = Field(description="When it was made.")
    expires_at: Moment = Field(description="When it ends.")
    passages: bool = Field(description="Whether cited passages can be read.")


class CreatedShare(Share):
    """A link that was made."""

    model_config = example({**_SHARE, "url": "http://127.0.0.1:8000/shared/…"})

    url: str = Field(description="Where it leads. It is shown this once.")


class ShareList(Reply):
    """The links of a session that still open."""

    model_config = example({"shares": [_SHARE]})

    shares: list[Share] = Field(description="In the order they were made.")


class RevokedShare(Reply):
    """A link that was taken back."""

    model_config = example({"share_id": SHARE_ID, "revoked": True})

    share_id: str = Field(description="Its id.")
    revoked: bool = Field(description="true.")
