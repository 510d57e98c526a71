"""A strategy's task within a conversation: its prompts take the place of the user's last message."""

from __future__ import annotations

from dataclasses import dataclass

from selfreflect.models.base import Message
from selfreflect.strategies.task import Task
from selfreflect.text import fill


@dataclass(frozen=True, kw_only=True)
class ConversationTask(Task):
    """The last message of ``conversation`` is the question. Answers are drawn from the conversation as it is,
    so that the distribution is what the client's model would have said."""

    conversation: tuple[Message, ...]

    def messages(self, template: str | None = None, **values: str) -> tuple[Message, ...]:
        """The conversation, with its last message replaced by ``template`` if there is one."""
        if template is None:
            return self.conversation
        content = fill(template, {"question": self.conversation[-1].content, **values})
        return (*self.conversation[:-1], Message(role="user", content=content))
