"""`/v1/responses/{id}`: what a tenant's requests left behind, to be read or let go."""

from tiffin.dialects.faults import shown
from tiffin.dialects.openai.responses_kept import deleted_body, items_body, refuse_query
from tiffin.errors import EndpointNotFound, MethodNotAllowed, ResponseNotFound
from tiffin.gateway.respond import JSON
from tiffin.ports.conversations import Conversations, Kept
from tiffin.ports.exchange import Exchange, Headers

PREFIX = b"/v1/responses/"


class ResponsePages:
    """Answers from what is kept."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    async def __call__(self, exchange: Exchange, tenant: str, headers: Headers) -> None:
        """GET or DELETE of a tenant's response, GET of `input_items`; raises `ResponseNotFound`,
        and `Unavailable` where what gateways share can't be reached.

        `headers` are the answer's own.
        """
        path = exchange.path.removeprefix(PREFIX).decode("utf-8", "replace")
        name, _, below = path.partition("/")
        if below not in ("", "input_items") or path.endswith("/"):
            raise EndpointNotFound(f"there is no endpoint '{shown(below)}' of a response")
        allowed = (b"GET",) if below else (b"GET", b"DELETE")
        if exchange.method not in allowed:
            methods = ", ".join(method.decode() for method in allowed)
            raise MethodNotAllowed(f"this endpoint answers {methods} only", allowed=methods)
        await self._conversations.fetch(tenant, name)
        kept = self._found(tenant, name)
        if below:
            body = items_body(kept, exchange.query)
        elif exchange.method == b"DELETE":
            self._conversations.forget(tenant, name)
            gone = self._conversations.share(tenant, name)
            if gone is not None:
                await gone
            body = deleted_body(name)
        else:
            refuse_query(exchange.query)
            body = kept.response
        exchange.respond(200, [JSON, *headers], body)

    def _found(self, tenant: str, name: str) -> Kept:
        kept = self._conversations.find(tenant, name)
        if kept is None:
            raise ResponseNotFound(
                f"there is no response '{shown(name)}' here: they are kept for a while",
                param="response_id",
            )
        return kept
