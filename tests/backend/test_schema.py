from __future__ import annotations

import yaml
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema


def test_the_schema_is_valid_and_describes_every_endpoint(people):
    response = people.client("viewer").get("/api/schema/")
    assert response.status_code == 200
    schema = yaml.safe_load(response.content)
    validate_schema(schema)
    assert {
        "/api/experiments/",
        "/api/experiments/{id}/configuration/",
        "/api/diagnoses/{id}/ops/",
        "/api/proposals/{id}/",
        "/api/reviews/",
        "/api/predict/",
        "/api/tokens/",
        "/api/runs/{id}/retry/",
    } <= set(schema["paths"])
    operations = [item["operationId"] for path in schema["paths"].values() for item in path.values()]
    assert len(operations) == len(set(operations))


def test_the_schema_is_made_without_warnings(capsys):
    from drf_spectacular.drainage import GENERATOR_STATS

    GENERATOR_STATS.reset()
    with GENERATOR_STATS.silence():
        SchemaGenerator().get_schema(public=True)
    assert not GENERATOR_STATS, (dict(GENERATOR_STATS._warn_cache), dict(GENERATOR_STATS._error_cache))


def test_the_documentation_needs_nothing_from_elsewhere(people):
    page = people.client("viewer").get("/api/docs/").content.decode()
    assert "/static/drf_spectacular_sidecar/" in page
    assert "https://" not in page.replace("https://github.com/swagger-api", "")
