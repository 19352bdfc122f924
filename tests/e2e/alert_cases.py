"""Holds cases for the alerts of deploy/grafana. For each alert there are series with which it fires and series with which it does
not. The series are in promtool's notation, with one value a minute. test_prometheus.py lets promtool judge them."""

HEAD, GATEWAY = 'job="coxswain-head"', 'job="coxswain-gateway"'


def head(name, values):
    return f"{name}{{{HEAD}}}", values


def gateway(name, values, more=""):
    return f"{name}{{{GATEWAY}{more}}}", values


def answers(kind, per_minute):
    return gateway("http_requests_total", f"0+{per_minute}x40", f', status="{kind}"')


def first_tokens(quick, late):
    """`quick` and `late` count first tokens per minute: `quick` those within 10 s, `late` those within 20 s."""
    return [gateway("vllm:time_to_first_token_seconds_bucket", f"0+{n}x40", f', le="{le}"')
            for le, n in (("10", quick), ("20", quick + late), ("+Inf", quick + late))]


def full(usage, preemptions):
    return [head("vllm:kv_cache_usage_perc", f"{usage}x40"), head("vllm:num_preemptions_total", f"0+{preemptions}x40")]


def queue(waiting, desired, workers):
    return [head("vllm:num_requests_waiting", f"{waiting}x40"), head("coxswain_head_desired_workers", f"{desired}x40"),
            head("coxswain_workers", f"{workers}x40")]


UP = head("coxswain_uptime_seconds", "0+60x40")
DAY = 86400
CASES = [  # each case: alert, series, minutes from the start, whether the alert fires then
    ("CoxswainHeadGone", [], 3, True),
    ("CoxswainHeadGone", [], 1, False),
    ("CoxswainHeadGone", [UP], 3, False),
    ("CoxswainHeadGone", [head("coxswain_uptime_seconds", "0+60x5 stale")], 10, True),
    ("CoxswainNothingServes", [head("coxswain_groups_ready", "0x40")], 6, True),
    ("CoxswainNothingServes", [head("coxswain_groups_ready", "0x40"), head("coxswain_head_desired_workers", "2x40")], 6, True),
    ("CoxswainNothingServes", [head("coxswain_groups_ready", "0x40"), head("coxswain_head_desired_workers", "0x40")], 6, False),
    ("CoxswainNothingServes", [head("coxswain_groups_ready", "0x3 1x40")], 8, False),
    ("CoxswainNothingServes", [head("coxswain_groups_ready", "0x40"), head("coxswain_head_sleep_level", "2x40")], 6, False),
    ("CoxswainNothingServes", [head("coxswain_groups_ready", "0x40"), head("coxswain_head_sleep_level", "0x40")], 6, True),
    ("CoxswainGatewayWithoutHead", [gateway("coxswain_gateway_head_link_up", "0x40", ', instance="a"'),
                                    gateway("coxswain_gateway_head_link_up", "1x40", ', instance="b"')], 3, True),
    ("CoxswainGatewayWithoutHead", [gateway("coxswain_gateway_head_link_up", "0 1x40", ', instance="a"')], 3, False),
    ("CoxswainRequestsFail", [answers("2xx", 90), answers("5xx", 10)], 16, True),
    ("CoxswainRequestsFail", [answers("2xx", 97), answers("5xx", 3)], 16, False),
    ("CoxswainRequestsFail", [answers("2xx", 100)], 16, False),
    ("CoxswainQueueDoesNotEnd", queue(3, 4, 2), 16, True),
    ("CoxswainQueueDoesNotEnd", queue(3, 2, 2), 16, False),
    ("CoxswainQueueDoesNotEnd", queue(0, 4, 2), 16, False),
    ("CoxswainFirstTokenLate", first_tokens(9, 1), 22, True),
    ("CoxswainFirstTokenLate", first_tokens(99, 1), 22, False),
    ("CoxswainCacheFull", full(0.99, 5), 22, True),
    ("CoxswainCacheFull", full(0.99, 0), 22, False),
    ("CoxswainCacheFull", full(0.5, 5), 22, False),
    ("CoxswainWorkersLost", [head("coxswain_worker_losses_total", "0+1x40")], 31, True),
    ("CoxswainWorkersLost", [head("coxswain_worker_losses_total", "0x20 2x20")], 31, False),
    ("CoxswainGroupsDoNotForm", [head("coxswain_formation_failures_total", "0+1x40")], 16, True),
    ("CoxswainGroupsDoNotForm", [head("coxswain_formation_failures_total", "0x10 3x30")], 16, False),
    ("CoxswainGroupShrunk", [head("coxswain_groups_shrunk", "1x40")], 16, True),
    ("CoxswainGroupShrunk", [head("coxswain_groups_shrunk", "1x10 0x30")], 16, False),
    ("CoxswainStraggler", [head("coxswain_stragglers", "1x40")], 16, True),
    ("CoxswainStraggler", [head("coxswain_stragglers", "0x40")], 16, False),
    ("CoxswainNoStandby", [head("coxswain_head_store_reached", "0x40"), head("coxswain_head_serves", "1x40")], 6, True),
    ("CoxswainNoStandby", [(f'coxswain_head_serves{{{HEAD}, instance="{i}"}}', "1x40") for i in "ab"] +
     [head("coxswain_head_store_reached", "1x40")], 6, False),
    ("CoxswainNoStandby", [UP], 6, False),
    ("CoxswainCertificateEnds", [gateway("coxswain_gateway_tls_certificate_expires_timestamp_seconds", f"{6 * DAY}x40")], 1, True),
    ("CoxswainCertificateEnds", [gateway("coxswain_gateway_tls_certificate_expires_timestamp_seconds", f"{8 * DAY}x40")], 1, False),
]


def promtool_file(rules):
    """Returns the cases in the form that `promtool test rules` takes: JSON, which is valid YAML."""
    return {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [
        {"interval": "1m", "name": f"{alert} {'fires' if fires else 'is silent'} after {minutes} min ({i})",
         "input_series": [{"series": s, "values": v} for s, v in series],
         "promql_expr_test": [{"expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})', "eval_time": f"{minutes}m",
                               "exp_samples": [{"value": 1}] if fires else []}]}
        for i, (alert, series, minutes, fires) in enumerate(CASES)]}
