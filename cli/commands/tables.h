#pragma once
/* Declares the option tables of the commands. Each table is defined in its command's source
 * file, next to the struct that it fills. The tables of `cox up` and `cox pull` are in
 * cli/up/plan/options.h and cli/pull/options.h. */
#include "common/config/config.h"
#include "common/config/help.h"

extern const struct option_spec status_specs[], drain_specs[], events_specs[], lora_specs[];
extern const struct option_spec undrain_specs[], debug_specs[], top_specs[];
extern const size_t status_n_specs, drain_n_specs, events_n_specs, lora_n_specs, debug_n_specs;
extern const size_t undrain_n_specs, top_n_specs, usage_n_specs;
extern const struct option_spec sleep_specs[], wake_specs[], usage_specs[];
extern const size_t sleep_n_specs, wake_n_specs;
extern const struct option_spec logs_specs[], scale_specs[], ps_specs[], stop_specs[];
extern const size_t logs_n_specs, scale_n_specs, ps_n_specs, stop_n_specs;
extern const struct option_spec chat_specs[];
extern const size_t chat_n_specs;
extern const struct option_spec complete_specs[];
extern const size_t complete_n_specs;
extern const struct option_spec smoke_specs[];
extern const size_t smoke_n_specs;
extern const struct option_spec workers_specs[];
extern const size_t workers_n_specs;
extern const struct option_spec run_batch_specs[];
extern const size_t run_batch_n_specs;
extern const struct option_spec models_specs[], rm_specs[];
extern const size_t models_n_specs, rm_n_specs;
extern const struct option_spec models_list_specs[], models_add_specs[], models_rm_specs[];
extern const struct option_spec models_alias_specs[];
extern const size_t models_list_n_specs, models_add_n_specs, models_rm_n_specs;
extern const size_t models_alias_n_specs;
extern const struct option_spec keys_specs[], join_token_specs[], version_specs[];
extern const size_t keys_n_specs, join_token_n_specs, version_n_specs;

extern const struct option_spec run_specs[], run_create_specs[], run_list_specs[];
extern const struct option_spec run_show_specs[], run_logs_specs[], run_terminate_specs[];
extern const struct option_spec run_delete_specs[], run_render_specs[];
extern const size_t run_n_specs, run_create_n_specs, run_list_n_specs, run_show_n_specs;
extern const size_t run_logs_n_specs, run_terminate_n_specs, run_delete_n_specs, run_render_n_specs;

extern const struct option_spec bench_serve_specs[], bench_throughput_specs[];
extern const struct option_spec bench_latency_specs[], bench_startup_specs[];
extern const size_t bench_serve_n_specs, bench_throughput_n_specs, bench_latency_n_specs;
extern const size_t bench_startup_n_specs;
extern const struct option_group bench_option_groups[];
