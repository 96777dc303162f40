"""Triggers that keep `FacetCount`: counts stay right whichever way records come, change and go."""

_COLUMNS = "team_id, hardware, chip, chips, model_name, model_family, bottleneck, changes, outcome, provenance"
_SAME = " AND ".join(f"f.{column} IS NOT DISTINCT FROM g.{column}" for column in _COLUMNS.split(", "))
_OLD = ", ".join(f"OLD.{column}" for column in _COLUMNS.split(", "))
_NEW = ", ".join(f"NEW.{column}" for column in _COLUMNS.split(", "))

# Grouped and sorted, so that two imports at a time take the counts' locks in one order.
_ADD = f"""
    INSERT INTO history_facetcount AS f ({_COLUMNS}, count)
    SELECT {_COLUMNS}, count(*) FROM {{rows}} GROUP BY {_COLUMNS} ORDER BY {_COLUMNS}
    ON CONFLICT ({_COLUMNS}) DO UPDATE SET count = f.count + EXCLUDED.count;
"""
_TAKE = f"""
    UPDATE history_facetcount f SET count = f.count - g.gone
    FROM (SELECT {_COLUMNS}, count(*) AS gone FROM {{rows}} GROUP BY {_COLUMNS}) g WHERE {_SAME};
    DELETE FROM history_facetcount WHERE count = 0;
"""

CREATE = f"""
CREATE FUNCTION history_counts_added() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    {_ADD.format(rows="added")}
    RETURN NULL;
END $$;
CREATE FUNCTION history_counts_removed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    {_TAKE.format(rows="removed")}
    RETURN NULL;
END $$;
CREATE FUNCTION history_counts_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    {_TAKE.format(rows="(SELECT OLD.*) o")}
    {_ADD.format(rows="(SELECT NEW.*) n")}
    RETURN NULL;
END $$;
CREATE TRIGGER history_counts_added AFTER INSERT ON history_historyrecord
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION history_counts_added();
CREATE TRIGGER history_counts_removed AFTER DELETE ON history_historyrecord
    REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION history_counts_removed();
CREATE TRIGGER history_counts_moved AFTER UPDATE ON history_historyrecord FOR EACH ROW
    WHEN (({_OLD}) IS DISTINCT FROM ({_NEW})) EXECUTE FUNCTION history_counts_moved();
"""

DROP = """
DROP TRIGGER history_counts_added ON history_historyrecord;
DROP TRIGGER history_counts_removed ON history_historyrecord;
DROP TRIGGER history_counts_moved ON history_historyrecord;
DROP FUNCTION history_counts_added(), history_counts_removed(), history_counts_moved();
"""
