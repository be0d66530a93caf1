"""The nouns that decisions are made of. Values only: nothing here does anything."""

import msgspec


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one request by kind, as the worker counted them.

    None means that the worker said nothing; 0 means that it said none. Dialects that count cached
    tokens beside the prompt (Anthropic's) are brought to this form by `gateway.wire.usage`.
    """

    input_tokens: int | None = None  # the whole prompt, cached part included
    cached_tokens: int | None = None  # of the input, read from the prefix cache
    cache_write_tokens: int | None = None  # of the input, written to the prefix cache
    output_tokens: int | None = None  # everything generated, reasoning included
    reasoning_tokens: int | None = None  # of the output
