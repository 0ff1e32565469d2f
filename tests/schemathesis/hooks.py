"""Which requests are good or bad, as far as JSON Schema cannot say it: those are left out."""

import schemathesis

# The figures of an adaptive step that a body does not give.
ADAPTIVE = {"min": 100, "initial": 1_000, "max": 1_000_000, "grow_below_ms": 900_000, "shrink_above_ms": 1_800_000}


def size(name):
    return len(name.encode("utf-8", "surrogatepass"))


def are_short(path, query, body):
    """A tag has 128 bytes at most, where a schema counts characters; one of CosId's is made of two names and a dot."""
    names = [name for name in [*path.values(), *query.values(), body.get("tag")] if isinstance(name, str)]
    if any(len(name) > 128 for name in names):
        return True
    whole = size(f"{path['namespace']}.{path.get('name')}") if "namespace" in path else 0
    if isinstance(query.get("sub"), str):
        whole = size(f"{path.get('tag')}.{query['sub']}")
    return max(whole, *map(size, names), 0) <= 128


def are_new_names(path, query, body):
    """A name with a space at an end is good for a tag that is there already, and there is none here."""
    names = [name for name in [*path.values(), *query.values(), body.get("tag")] if isinstance(name, str)]
    return all(name == name.strip() for name in names)


def is_in_order(step):
    """An adaptive step lies between its bounds."""
    if step.get("policy") != "adaptive":
        return True
    try:
        figures = {name: int(step.get(name, default)) for name, default in ADAPTIVE.items()}
    except (TypeError, ValueError):
        return True
    return (
        figures["min"] <= figures["initial"] <= figures["max"]
        and figures["grow_below_ms"] <= figures["shrink_above_ms"]
    )


def number(figure, default):
    return int(figure) if str(figure).isdecimal() else default


def fits_its_channel(body):
    """A channel stands in place of other settings, and the next numbers are fetched before the last are used up."""
    if "tag" not in body:
        return True
    of_channel, of_others = {"buff_size", "lowest_critical_value", "prefix"}, {"start", "step", "refill", "mode"}
    if "channel" in body and of_others & body.keys():
        return False
    if body.get("channel") != "unordered":
        return not of_channel & body.keys()
    buff_size = number(body.get("buff_size"), 5_000)
    return number(body.get("lowest_critical_value"), min(500, buff_size // 10)) < buff_size


def leaves_numbers(query, body, step, refill):
    """A tag whose numbers are used up accepts nothing from then on; and the bounds of numbers are said in words."""
    figures = [query.get("offset"), refill.get("count"), *step.values()]
    figures += [body.get(name) for name in ["start", "raise_to", "buff_size", "lowest_critical_value"]]
    for figure in figures:
        if str(figure).isdecimal() and int(figure) >= 1 << 56:
            return False
    return True


def is_configured(path, query):
    """Templates and shard keys are available where the configuration says so, and it says nothing here."""
    return "id" in path or not (query.get("format") == "template" or "shard_key" in query)


# Whole numbers that the document has as strings of digits.
AS_TEXT = {"start", "step", "initial", "min", "max", "grow_below_ms", "shrink_above_ms", "count", "raise_to"}
AS_TEXT |= {"buff_size", "lowest_critical_value", "prefix"}


def is_as_narrow(value, name=None):
    """The service takes more than the document says: a JSON number for its digits, and null for what is not given. Unions
    would be a burden on clients that are made from the document."""
    if isinstance(value, dict):
        return all(is_as_narrow(member, name) for name, member in value.items())
    return value is not None and not (name in AS_TEXT and isinstance(value, int))


def is_confirmed(body):
    """A tag is raised by a billion numbers when that is said twice."""
    figure = body.get("raise_to")
    return not (str(figure).isdecimal() and int(figure) > 1_000_000_000) or body.get("confirm") is True


def has_no_whole_float(value):
    """1.0 is an integer to JSON Schema. The service takes none: what came as a float may have been rounded."""
    if isinstance(value, dict):
        return all(map(has_no_whole_float, value.values()))
    return not (isinstance(value, float) and value.is_integer())


@schemathesis.hook
def filter_case(ctx, case):
    path, query = case.path_parameters or {}, case.query or {}
    body = case.body if isinstance(case.body, dict) else {}
    step = body.get("step") if isinstance(body.get("step"), dict) else {}
    refill = body.get("refill") if isinstance(body.get("refill"), dict) else {}
    return (
        are_short(path, query, body)
        and are_new_names(path, query, body)
        and is_in_order(step)
        and fits_its_channel(body)
        and ("after_sub" not in query or "after" in query)
        and leaves_numbers(query, body, step, refill)
        and is_confirmed(body)
        and is_configured(path, query)
        and has_no_whole_float(body)
        and is_as_narrow(body)
        and case.body is not None
    )


@schemathesis.check
def the_problem_is_of_the_operation(ctx, response, case):
    """A problem's type is one of those that the document lists for the operation and status."""
    if "application/problem+json" not in response.headers.get("content-type", [""])[0]:
        return
    listed = case.operation.definition.raw["responses"].get(str(response.status_code), {})
    if "$ref" in listed:
        listed = case.operation.schema.raw_schema["components"]["responses"][str(response.status_code)]
    listed = listed.get("x-problem-types", [])
    problem = response.json()
    # What may be met before anybody looks at where a request goes.
    if problem["type"].endswith((":route-unknown", ":method-not-allowed")):
        return
    assert problem["type"] in listed, f"{problem['type']} is not one of {listed}"
    assert problem["status"] == response.status_code, problem
