"""What the run is told: the text and the images of the messages that it has not seen."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field

from inspect_ai.model import ChatMessage, ContentImage, ContentText

# The types that `delta run -a` accepts.
IMAGE_ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


@dataclass
class Task:
    """The text of a message for delta and its images, each with the ending of its file."""

    text: str
    images: list[tuple[str, bytes]] = field(default_factory=list)


def new_task(messages: Sequence[ChatMessage], is_first: bool) -> Task:
    """The task in the user messages after the last answer, or in the last user message.

    At the start of a run, the system messages of the task come first: delta has a system prompt of its own.
    """
    answered = max((i for i, message in enumerate(messages) if message.role == "assistant"), default=-1)
    users = [message for message in messages[answered + 1 :] if message.role == "user"]
    if not users:
        users = [message for message in messages if message.role == "user"][-1:]
    if not users:
        raise ValueError("the agent got no user message")
    systems = [message for message in messages if message.role == "system"] if is_first else []
    texts: list[str] = []
    images: list[tuple[str, bytes]] = []
    for message in systems + users:
        if isinstance(message.content, str):
            texts.append(message.content)
            continue
        for part in message.content:
            if isinstance(part, ContentText):
                texts.append(part.text)
            elif isinstance(part, ContentImage):
                images.append(image_file(part.image))
            else:
                raise ValueError(f"delta takes text and images, not `{part.type}`")
    return Task("\n\n".join(texts), images)


def image_file(url: str) -> tuple[str, bytes]:
    """The ending and the bytes of an image; Inspect has made a data URL of each file in a dataset."""
    head, _, data = url.partition(",")
    media_type = head.removeprefix("data:").removesuffix(";base64")
    if not head.startswith("data:") or not head.endswith(";base64"):
        raise ValueError(f"expected an image as a base64 data URL, found `{url[:40]}`")
    if media_type not in IMAGE_ENDINGS:
        raise ValueError(f"expected one of {', '.join(IMAGE_ENDINGS)}, found `{media_type}`")
    return IMAGE_ENDINGS[media_type], base64.b64decode(data)
