"""Lists JSON schemas for every keyword that the grammars support. Each schema is bounded, so that an answer ends."""
NAME = {"type": "string", "minLength": 2, "maxLength": 12}
WORD = {"type": "string", "maxLength": 8}
SMALL = {"type": "integer", "minimum": 0, "maximum": 99}


def obj(properties, *optional, **more):
    return {"type": "object", "properties": properties, "required": [k for k in properties if k not in optional],
            "additionalProperties": False, **more}


def value(schema):
    return obj({"value": schema})


def text(**more):
    return value({"type": "string", **more})


def number(**more):
    return value({"type": "integer", **more})


SCHEMAS = {
    # types
    "null": value({"type": "null"}),
    "boolean": value({"type": "boolean"}),
    "integer": number(minimum=-1000, maximum=1000),
    "number": value({"type": "number", "minimum": -10, "maximum": 10, "multipleOf": 0.25}),
    "string": text(maxLength=20),
    "types": value({"type": ["integer", "null", "boolean"], "minimum": 0, "maximum": 9}),
    "nullable": obj({"name": {"type": ["string", "null"], "maxLength": 10}, "age": {"anyOf": [SMALL, {"type": "null"}]}}),
    "bare_boolean": {"type": "boolean"},
    "bare_string": {"type": "string", "maxLength": 16},
    "bare_array": {"type": "array", "items": SMALL, "minItems": 1, "maxItems": 4},
    # enum and const
    "enum": value({"enum": ["red", "green", "blue", 7, None, False]}),
    "enum_objects": value({"enum": [{"a": 1}, [1, 2], "x\"y\\z", 2.5]}),
    "enum_typed": value({"type": "string", "enum": ["north", "south", 3]}),
    "enum_unicode": value({"enum": ["Zürich", "東京", "naïve\n", "\U0001f600"]}),
    "const": obj({"kind": {"const": "point"}, "at": {"const": [0, 0]}, "none": {"const": None}}),
    # objects
    "required": obj({"name": NAME, "age": SMALL, "mail": {"type": "boolean"}}),
    "optional": obj({"name": NAME, "age": SMALL, "title": WORD}, "age", "title"),
    "nothing_required": obj({"a": SMALL, "b": SMALL, "c": SMALL}, "a", "b", "c"),
    "additional": {"type": "object", "properties": {"id": SMALL}, "required": ["id"], "maxProperties": 3,
                   "additionalProperties": {"type": "boolean"}},
    "required_elsewhere": {"type": "object", "properties": {"a": SMALL}, "required": ["a", "b"], "maxProperties": 2,
                           "additionalProperties": WORD},
    "pattern_properties": {"type": "object", "patternProperties": {"^s_[a-z]{1,4}$": WORD, "^n_[a-z]{1,4}$": SMALL}, "maxProperties": 3,
                           "additionalProperties": False},
    "pattern_and_named": {"type": "object", "properties": {"id": SMALL}, "patternProperties": {"^x_[0-9]{1,2}$": {"type": "null"}},
                          "required": ["id"], "maxProperties": 3, "additionalProperties": False},
    "min_properties": {"type": "object", "patternProperties": {"^[a-c]{1,3}$": SMALL}, "additionalProperties": False,
                       "minProperties": 1, "maxProperties": 2},
    "nested": obj({"person": obj({"name": NAME, "home": obj({"city": NAME, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}})})}),
    "odd_names": obj({"a b": SMALL, "\"": SMALL, "\\": SMALL, "é": SMALL, "": SMALL}),
    # arrays
    "items": value({"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 5}),
    "min_items": value({"type": "array", "items": SMALL, "minItems": 2, "maxItems": 4}),
    "exact_items": value({"type": "array", "items": {"type": "boolean"}, "minItems": 3, "maxItems": 3}),
    "prefix_items": value({"type": "array", "prefixItems": [SMALL, WORD, {"type": "null"}], "items": False, "minItems": 3}),
    "prefix_and_items": value({"type": "array", "prefixItems": [{"const": "v1"}], "items": SMALL, "minItems": 1, "maxItems": 4}),
    "prefix_optional": value({"type": "array", "prefixItems": [SMALL, SMALL], "items": False}),
    "matrix": value({"type": "array", "minItems": 2, "maxItems": 2,
                     "items": {"type": "array", "minItems": 2, "maxItems": 2, "items": SMALL}}),
    "empty_array": value({"type": "array", "maxItems": 0}),
    "array_of_objects": value({"type": "array", "items": obj({"x": SMALL, "y": SMALL}, "y"), "minItems": 1, "maxItems": 3}),
    # numbers
    "minimum": number(minimum=17, maximum=23),
    "exclusive": number(exclusiveMinimum=17, exclusiveMaximum=21),
    "negative": number(minimum=-120, maximum=-7),
    "around_zero": number(minimum=-3, maximum=3),
    "multiple_of": number(multipleOf=7, minimum=0, maximum=100),
    "both_bounds": number(minimum=0, exclusiveMinimum=10, maximum=1000, exclusiveMaximum=100),
    "decimals": value({"type": "number", "minimum": 0.5, "maximum": 1.5, "multipleOf": 0.01}),
    "wide": number(minimum=0, maximum=10**15),
    # strings
    "min_length": text(minLength=5, maxLength=9),
    "exact_length": text(minLength=4, maxLength=4),
    "empty_string": text(maxLength=0),
    "pattern": text(pattern="^[A-Z]{3}-[0-9]{2,4}$"),
    "pattern_inside": text(pattern="[0-9]{2}", maxLength=10),
    "pattern_choice": text(pattern="^(yes|no|per(haps|chance))$"),
    "pattern_unicode": text(pattern="^[äöüß]{2,6}$"),
    "pattern_and_length": text(pattern="^[a-z ]+$", minLength=3, maxLength=8),
    "pattern_escaped": text(pattern="^[\"\\\\x]{1,3}\\.[a-z]\\\\y$"),
    "date": text(format="date"),
    "time": text(format="time", maxLength=24),
    "date_time": text(format="date-time", maxLength=32),
    "duration": text(format="duration", maxLength=16),
    "uuid": text(format="uuid"),
    "email": text(format="email", maxLength=24),
    "hostname": text(format="hostname", maxLength=20),
    "ipv4": text(format="ipv4"),
    "ipv6": text(format="ipv6"),
    # combined schemas
    "any_of": value({"anyOf": [SMALL, WORD, obj({"a": {"type": "null"}})]}),
    "any_of_objects": {"anyOf": [obj({"kind": {"const": "cat"}, "lives": SMALL}), obj({"kind": {"const": "dog"}, "name": NAME})]},
    "one_of": value({"oneOf": [{"type": "boolean"}, {"type": "integer", "minimum": 1, "maximum": 5}, {"type": "null"}]}),
    "one_of_objects": {"oneOf": [obj({"circle": SMALL}), obj({"square": SMALL})]},
    "all_of": value({"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 12}]}),
    "all_of_objects": {"allOf": [{"type": "object", "properties": {"a": SMALL}, "required": ["a"]},
                                 {"type": "object", "properties": {"b": WORD}, "required": ["b"]}],
                       "properties": {"a": True, "b": True}, "additionalProperties": False},
    "beside_any_of": {"type": "object", "properties": {"a": SMALL, "b": SMALL}, "additionalProperties": False,
                      "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "ref": {**obj({"from": {"$ref": "#/$defs/place"}, "to": {"$ref": "#/$defs/place"}}), "$defs": {"place": obj({"x": SMALL, "y": SMALL})}},
    "ref_definitions": {**value({"$ref": "#/definitions/colour"}), "definitions": {"colour": {"enum": ["red", "blue"]}}},
    "ref_chain": {**value({"$ref": "#/$defs/a"}), "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/c"}, "c": SMALL}},
    "ref_beside": {**value({"$ref": "#/$defs/n", "maximum": 5}), "$defs": {"n": {"type": "integer", "minimum": 0}}},
    "ref_property": {**obj({"a": SMALL, "b": {"$ref": "#/properties/a"}})},
    "recursive_list": {"$ref": "#/$defs/node", "$defs": {"node": obj({"v": SMALL, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}})}},
    "recursive_tree": {"$ref": "#/$defs/tree", "$defs": {"tree": obj({"v": {"type": "boolean"}, "sub": {
        "type": "array", "maxItems": 1, "items": {"$ref": "#/$defs/tree"}}})}},
    "recursive_bounded": {"$ref": "#/$defs/node", "properties": {"next": {"properties": {"next": {"properties": {"next": {"type": "null"}}}}}},
                          "$defs": {"node": obj({"v": SMALL, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}})}},
    "titles": {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Person", "description": "with all sorts of remarks",
               **obj({"name": {**NAME, "title": "Name", "examples": ["Ann"], "default": "Bob"}})},
}
for schema in SCHEMAS.values():
    schema["x-guidance"] = {"whitespace_flexible": False}

# EXAMPLES has answers for schemas without a bound. The model's prompt contains such an example, so its answer ends.
EXAMPLES = {"recursive_list": '{"v":3,"next":{"v":8,"next":null}}', "recursive_tree": '{"v":true,"sub":[{"v":false,"sub":[]}]}'}
