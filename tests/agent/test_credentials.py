"""What is hidden of texts that others wrote, and what is left as it is."""

from __future__ import annotations

import pytest

from agent.provider.credentials import without_credentials

KEY = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6"
#: Before, and what is left of it.
HIDDEN = {
    "a password in an address": (
        "OSError: cannot reach postgres://me:p@ssw0rd@db:5432/x",
        "OSError: cannot reach postgres://[hidden]@db:5432/x",
    ),
    "a token in an address": (f"clone https://{KEY}@github.com/a/b.git", "clone https://[hidden]@github.com/a/b.git"),
    "AWS": ("InvalidAccessKeyId: AKIAIOSFODNN7EXAMPLE is unknown", "InvalidAccessKeyId: [hidden] is unknown"),
    "AWS by name": (
        "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY, region eu",
        "AWS_SECRET_ACCESS_KEY=[hidden], region eu",
    ),
    "Hugging Face": ("401 for hf_abcdefghijklmnopqrstuvwxyzABCDEF: gated", "401 for [hidden]: gated"),
    "GitHub": ("bad credentials: ghp_abcdefghijklmnopqrstuvwxyz0123456789", "bad credentials: [hidden]"),
    "Google": ("AIzaSyA1234567890abcdefghijklmnopqrstuvw is no key", "[hidden] is no key"),
    "a web token": ("jwt eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeKKF2 expired", "jwt [hidden] expired"),
    "a header": ("> Authorization: Basic dXNlcjpwYXNz", "> Authorization: [hidden]"),
    "headers of a request": (
        "{'authorization': 'Bearer abc', 'x-api-key': 'k', 'accept': '*'}",
        "{'authorization': '[hidden]', 'x-api-key': '[hidden]', 'accept': '*'}",
    ),
    "JSON": ('{"user": "me", "password": "two words", "n": 1}', '{"user": "me", "password": "[hidden]", "n": 1}'),
    "JSON in JSON": (r'"{\"token\": \"abcdefgh12345678\"}"', r'"{\"token\": \"[hidden]\"}"'),
    "the shell": (f"+ export WANDB_API_KEY={KEY} HF_TOKEN={KEY}", "+ export WANDB_API_KEY=[hidden] HF_TOKEN=[hidden]"),
    "a flag": ("train.py --db-password hunter2 --steps 30", "train.py --db-password [hidden] --steps 30"),
    "a signed address": (
        f"GET https://b.s3.amazonaws.com/x?X-Amz-Signature={KEY}&n=1 403",
        "GET https://b.s3.amazonaws.com/x?X-Amz-Signature=[hidden]&n=1 403",
    ),
    "a private key": (
        "key:\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----\nend",
        "key:\n[hidden]\nend",
    ),
}  # fmt: skip
LEFT = [
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
    "eos_token=</s> pad_token='[PAD]' max_new_tokens=4096 tokenizer_path=/models/llama3.1/tokenizer.model",
    "tokens/s: 12345.6, num_tokens=1048576, token: 128000",
    "NCCL WARN socketProgress: Connection closed by remote peer node2<4283>",
    "ssh://git@github.com/a/b.git and http://[::1]:8080/path@2",
    "Cannot lower %all-reduce.123 = (f32[16,2]{1,0}, token[]) all-reduce-start(%p), channel_id=1",
    "signature mismatch: jit(train_step)(f32[16], f32[2])",
    "KeyError: 'secrets' is not a key of the configuration",
]


@pytest.mark.parametrize(("text", "left"), HIDDEN.values(), ids=HIDDEN)
def test_what_looks_like_a_credential_is_hidden_and_no_more(text: str, left: str) -> None:
    assert without_credentials(text) == left
    assert without_credentials(left) == left


@pytest.mark.parametrize("text", LEFT)
def test_what_is_none_stays(text: str) -> None:
    assert without_credentials(text) == text


@pytest.mark.parametrize(
    "piece", ["://", "password=", "token: a1", "authorization: ", "--", "-----BEGIN PRIVATE KEY-----", "a" * 50]
)
@pytest.mark.timeout(20)
def test_a_long_line_takes_no_long_time(piece: str) -> None:
    without_credentials(piece * (200_000 // len(piece)))
