"""OpenTelemetry's names, in one table: the `gen_ai` conventions moved house in 2026, and may again.

`gen_ai.*` is semantic-conventions-genai's, everything else that has no `tenure.` before it is semantic-conventions' own.
"""

from __future__ import annotations

__all__ = ["OPERATIONS", "SCHEMA_URL", "operation_of"]

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"  # the last that has both in one

OPERATION = "gen_ai.operation.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
RESPONSE_MODEL = "gen_ai.response.model"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"  # seconds
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
METHOD = "http.request.method"
STATUS = "http.response.status_code"
PATH = "url.path"
ERROR = "error.type"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
SERVICE = "service.name"
RUN, JOB = "tenure.run.id", "tenure.job.id"
ADAPTER, TOKEN = "tenure.adapter", "tenure.token.name"
HELD, HELD_S, WOKE, LEFT = "tenure.held", "tenure.held_seconds", "tenure.woke", "tenure.client_left"

OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}


def operation_of(path: str) -> str:
    return OPERATIONS.get(path) or path.removeprefix("/v1/").replace("/", "_")
