# Lists the tests in Python: checks of scripts/ (any Python 3.11), and black-box tests of the real programs (in .venv). Each file is one ctest test.
# The tests wait more than they compute, so as many run at once as there are processors.
# Tests that depend on how processors are shared (`alone_tests`) run alone.
set(alone_tests "^(busy_machine|host_failures|overload|processes|sizes|straggler|straggler_model)$")
# `memory_tests` are end-to-end tests that find memory faults which unit tests and fuzz corpora miss. They send malformed bytes to every port,
# cancel, move, preempt and adopt running requests, use files, batches, keys and TLS, and load and split models.
string(CONCAT memory_tests "^(answers|api|bad_frames|bad_input|batches|debug_dump|elastic_tp|files|http_bytes|key_rotation|keys|"
       "kv_transfers|moves|overload|pooling|quotas|replay|sagemaker|prompt_logprobs|stages|stats|streams|tiny_models|tls|traces|upgrade|workers)$")
find_program(PYTHON3 NAMES python3 REQUIRED)
# Scripts and sources are the same in every build, so only plain builds test them.
if(NOT COX_SANITIZE AND NOT COX_CUDA)
  set(of_sources check_layers check_size check_names)
  foreach(check ${of_sources})
    add_test(NAME ${check} COMMAND ${PYTHON3} ${CMAKE_SOURCE_DIR}/scripts/${check}.py)
  endforeach()
  file(GLOB of_scripts CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/scripts ${CMAKE_CURRENT_SOURCE_DIR}/scripts/*_test.py)
  list(REMOVE_ITEM of_scripts first_run_pack_test.py) # this test is added below, for CUDA builds
  foreach(script ${of_scripts})
    string(REPLACE _test.py _scripts name ${script})
    add_test(NAME ${name} COMMAND ${PYTHON3} ${CMAKE_CURRENT_SOURCE_DIR}/scripts/${script})
    list(APPEND of_sources ${name})
  endforeach()
  add_test(NAME packaging_packages COMMAND ${PYTHON3} ${CMAKE_CURRENT_SOURCE_DIR}/packaging/packages_test.py)
  list(APPEND of_sources packaging_packages)
  add_test(NAME check_notices COMMAND ${PYTHON3} ${CMAKE_SOURCE_DIR}/scripts/notices.py --check)
  add_test(NAME grafana_files COMMAND ${PYTHON3} ${CMAKE_SOURCE_DIR}/deploy/grafana/render --check)
  set_tests_properties(${of_sources} check_notices grafana_files PROPERTIES LABELS quick TIMEOUT 300 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endif()

# Installs packages in minimal roots. Needs root, debootstrap, build/packages and the demo model (packaging/try). Takes minutes.
if(NOT COX_SANITIZE AND NOT COX_CUDA)
  foreach(suite bullseye bookworm trixie)
    add_test(NAME packaging_${suite} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/packaging/try_or_skip deb,rpm,wheel,tarball ${suite})
    set_tests_properties(packaging_${suite} PROPERTIES LABELS long TIMEOUT 3600 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE)
  endforeach()
endif()

if(COX_CUDA) # the test uses build/release if it exists, and builds kernels for one architecture, cached by ccache
  add_test(NAME first_run_pack COMMAND ${PYTHON3} ${CMAKE_SOURCE_DIR}/tests/scripts/first_run_pack_test.py)
  set_tests_properties(first_run_pack PROPERTIES LABELS cuda_link TIMEOUT 3600 SKIP_RETURN_CODE 77 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endif()

set(e2e_environment "COX_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};COX_SANITIZE=${COX_SANITIZE};COX_CUDA=${COX_CUDA}")
file(GLOB e2e_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/e2e/test_*.py)
foreach(t ${e2e_tests})
  get_filename_component(n ${t} NAME_WE)
  string(REPLACE test_ "" n ${n})
  if(COX_SANITIZE AND n STREQUAL model) # e2e_tiny_models and e2e_model_recovery cover the same code in seconds
    continue()
  endif()
  add_test(NAME e2e_${n} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python -m pytest -q -rs -p no:cacheprovider ${t})
  set_tests_properties(e2e_${n} PROPERTIES LABELS e2e TIMEOUT 1200 SKIP_RETURN_CODE 77 ENVIRONMENT "${e2e_environment}")
  if(n MATCHES "${alone_tests}")
    set_tests_properties(e2e_${n} PROPERTIES RUN_SERIAL TRUE)
  endif()
  # Under sanitizers CI runs only `memory_tests`. The other tests run the same code in longer scenarios (table in docs/develop/testing.md).
  if(COX_SANITIZE AND NOT n MATCHES "${memory_tests}")
    set_tests_properties(e2e_${n} PROPERTIES LABELS long)
  endif()
  if(n MATCHES "^(tiny_models|streams|api)$")
    set_tests_properties(e2e_${n} PROPERTIES LABELS "e2e;threads")
  endif()
  if(n STREQUAL cuda_absent) # this test checks a CUDA build on a machine without a device
    set_tests_properties(e2e_${n} PROPERTIES LABELS "e2e;cuda_link")
  endif()
endforeach()
# the chart, its pods as processes, and the examples; sanitizers find no further faults in them
if(NOT COX_SANITIZE AND NOT COX_CUDA)
  # These tests check the Helm chart, rendered by Helm as a library, without a cluster (docs/develop/deploy-design.md).
  foreach(n access around cache chart kustomize no_cluster package pages push runs values)
    add_test(NAME k8s_${n} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/k8s/run_chart_tests -m pytest -q -rs -p no:cacheprovider
                                   ${CMAKE_CURRENT_SOURCE_DIR}/k8s/test_${n}.py)
    set_tests_properties(k8s_${n} PROPERTIES LABELS quick TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT "${e2e_environment}")
  endforeach()
  # This test runs the same pods as processes in namespaces (tests/k8s/pods.py). It needs root.
  add_test(NAME k8s_rendered_processes COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/k8s/run_chart_tests -m pytest -q -rs -p no:cacheprovider
                                               ${CMAKE_CURRENT_SOURCE_DIR}/k8s/test_rendered_processes.py)
  set_tests_properties(k8s_rendered_processes PROPERTIES LABELS e2e TIMEOUT 1200 SKIP_RETURN_CODE 77 ENVIRONMENT "${e2e_environment}")
  # These tests run on a Kubernetes of their own (k8s/cluster, docs/develop/deploy-testing.md). They need root and the programs that scripts/setup
  # --k8s builds.
  # Tests of releases take many minutes. They make an image of the programs, and sanitizer builds are not made for an image.
  file(GLOB live_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/k8s/live/test_*.py)
  foreach(t ${live_tests})
    get_filename_component(n ${t} NAME_WE)
    string(REPLACE test_ "" n ${n})
    add_test(NAME k8s_live_${n} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python -m pytest -q -rs -p no:cacheprovider ${t})
    set_tests_properties(k8s_live_${n} PROPERTIES LABELS k8s-cluster TIMEOUT 3600 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE
                         ENVIRONMENT "${e2e_environment}")
  endforeach()
  set_tests_properties(k8s_live_release k8s_live_trouble k8s_live_kinds k8s_live_models k8s_live_leaderworkerset k8s_live_walks k8s_live_to_zero k8s_live_cache k8s_live_runs k8s_live_versions PROPERTIES LABELS "k8s-cluster;long")
  # Each example of deploy/examples works as its README says.
  file(GLOB example_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/examples/test_*.py)
  foreach(t ${example_tests})
    get_filename_component(n ${t} NAME_WE)
    string(REPLACE test_ "" n ${n})
    add_test(NAME examples_${n} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python -m pytest -q -rs -p no:cacheprovider ${t})
    set_tests_properties(examples_${n} PROPERTIES LABELS e2e TIMEOUT 1200 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE
                         ENVIRONMENT "${e2e_environment}")
  endforeach()
  set_tests_properties(examples_pages PROPERTIES LABELS quick)
endif()
# Checks the seed documents, which users provide (tests/seeds/README.md).
if(NOT COX_SANITIZE AND NOT COX_CUDA)
  file(GLOB seed_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/seeds/test_*.py)
  foreach(t ${seed_tests})
    get_filename_component(n ${t} NAME_WE)
    string(REGEX REPLACE "^test_(seed_)?" "" n ${n})
    add_test(NAME seeds_${n} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python -m pytest -q -rs -p no:cacheprovider ${t})
    set_tests_properties(seeds_${n} PROPERTIES LABELS e2e TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT "${e2e_environment}")
  endforeach()
  set_tests_properties(seeds_table PROPERTIES LABELS quick)
endif()
# Checks the docs site (scripts/docs), and the flags on pages against this build's programs. Tests of the site share one build of the site.
if(NOT COX_SANITIZE AND NOT COX_CUDA)
  set(docs_site_more search accessibility)
  foreach(n site flags howto man)
    list(TRANSFORM docs_${n}_more REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/docs/test_\\1.py")
    add_test(NAME docs_${n} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python -m pytest -q -rs -p no:cacheprovider
                                    ${CMAKE_CURRENT_SOURCE_DIR}/docs/test_${n}.py ${docs_${n}_more})
    set_tests_properties(docs_${n} PROPERTIES LABELS docs TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT "${e2e_environment}")
  endforeach()
  # Checks each claim and figure of README.md. It kills workers, the head and a gateway of a separate cluster.
  add_test(NAME docs_readme_claims COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/docs/readme_claims)
  set_tests_properties(docs_readme_claims PROPERTIES LABELS docs TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT "${e2e_environment}")
endif()
# These tests have hostile peers, bad networks and a locked-down host, on loopback only (docs/develop/security.md).
file(GLOB security_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/security/test_*.py)
foreach(t ${security_tests})
  get_filename_component(n ${t} NAME_WE)
  string(REPLACE test_ "" n ${n})
  add_test(NAME security_${n} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python -m pytest -q -rs -p no:cacheprovider ${t})
  set_tests_properties(security_${n} PROPERTIES LABELS e2e TIMEOUT 1200 SKIP_RETURN_CODE 77 ENVIRONMENT "${e2e_environment}")
endforeach()
# A malicious client with a valid key makes one attack at a time. The attacks are those that test_attacks.py marks as wired
# (docs/develop/testing.md).
add_test(NAME hostile_attacks COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python -m pytest -q -rs -p no:cacheprovider
                                      ${CMAKE_CURRENT_SOURCE_DIR}/hostile/test_attacks.py)
set_tests_properties(hostile_attacks PROPERTIES LABELS e2e TIMEOUT 1200 SKIP_RETURN_CODE 77 ENVIRONMENT "${e2e_environment}")
if(COX_SANITIZE)
  set_tests_properties(hostile_attacks PROPERTIES LABELS long)
endif()
# Checks that some walk types each command of the pages (tests/walk).
add_test(NAME walk COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python -m pytest -q -rs -p no:cacheprovider
                           ${CMAKE_CURRENT_SOURCE_DIR}/walk/test_walk.py)
set_tests_properties(walk PROPERTIES LABELS quick TIMEOUT 300 SKIP_RETURN_CODE 77)
# Checks this build's container image (deploy/image). Sanitizer builds need libraries that no image has.
if(COX_CUDA)
  set(image_tests cuda_variant)
elseif(NOT COX_SANITIZE)
  set(image_tests image custom_image dockerfile sagemaker seccomp)
endif()
foreach(n ${image_tests})
  add_test(NAME image_${n} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python -m pytest -q -rs -p no:cacheprovider
                                   ${CMAKE_CURRENT_SOURCE_DIR}/image/test_${n}.py)
  set_tests_properties(image_${n} PROPERTIES LABELS e2e TIMEOUT 1200 SKIP_RETURN_CODE 77 ENVIRONMENT "${e2e_environment}")
endforeach()
if(COX_CUDA)
  set_tests_properties(image_cuda_variant PROPERTIES LABELS "e2e;cuda_link")
elseif(NOT COX_SANITIZE) # this test downloads a Debian system and compiles everything in it
  set_tests_properties(image_dockerfile PROPERTIES LABELS long TIMEOUT 7200)
  set_tests_properties(image_sagemaker PROPERTIES LABELS long) # image_custom_image does nearly the same by default
  set_tests_properties(image_seccomp PROPERTIES LABELS long) # it builds an image of its own
endif()
add_dependencies(threaded_tests cox cox-head cox-gateway cox-worker)
# These are whole runs of tests that sanitizer builds shorten: the demo model on two ranks, 100 clients at once, every tiny model (SHORT in e2e/cluster.py).
if(COX_SANITIZE)
  foreach(n model model_recovery tiny_models)
    add_test(NAME e2e_${n}_whole COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python -m pytest -q -rs -p no:cacheprovider
                                         ${CMAKE_CURRENT_SOURCE_DIR}/e2e/test_${n}.py)
    set_tests_properties(e2e_${n}_whole PROPERTIES LABELS long TIMEOUT 14400 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE
                         ENVIRONMENT "${e2e_environment};COX_WHOLE=1")
  endforeach()
endif()
# These tests use the demo model (scripts/acceptance b3, b4). Each takes 15 minutes on two cores.
foreach(n invariance overload)
  string(TOUPPER COX_${n}_MODEL variable)
  add_test(NAME e2e_${n}_demo COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python -m pytest -q -rs -p no:cacheprovider
                                      ${CMAKE_CURRENT_SOURCE_DIR}/e2e/test_${n}.py)
  set_tests_properties(e2e_${n}_demo PROPERTIES LABELS long TIMEOUT 7200 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE
                       ENVIRONMENT "${e2e_environment};${variable}=demo")
endforeach()
add_test(NAME e2e_busy_machine_long COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python -m pytest -q -rs -p no:cacheprovider
                                            ${CMAKE_CURRENT_SOURCE_DIR}/e2e/test_busy_machine.py)
set_tests_properties(e2e_busy_machine_long PROPERTIES LABELS long TIMEOUT 4000 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE
                     ENVIRONMENT "${e2e_environment};COX_HOG_S=1800")
add_test(NAME e2e_usage_whole COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python -m pytest -q -rs -p no:cacheprovider
                                      ${CMAKE_CURRENT_SOURCE_DIR}/e2e/test_usage.py)
set_tests_properties(e2e_usage_whole PROPERTIES LABELS long TIMEOUT 1200 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE
                     ENVIRONMENT "${e2e_environment};COX_USAGE_REQUESTS=10000")
set_tests_properties(e2e_ten_models PROPERTIES LABELS long TIMEOUT 3000 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE
                     ENVIRONMENT "${e2e_environment};COX_TEN_REQUESTS=2000;COX_TEN_SECONDS=600")
file(GLOB chaos_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/chaos/*_loop.py)
foreach(t ${chaos_tests})
  get_filename_component(n ${t} NAME_WE)
  add_test(NAME chaos_${n} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python ${t})
  set_tests_properties(chaos_${n} PROPERTIES LABELS chaos TIMEOUT 3000 SKIP_RETURN_CODE 77 PROCESSORS 2
                       ENVIRONMENT "${e2e_environment}")
endforeach()
# The same kill loop with a model that computes, so its ranks communicate in every step.
add_test(NAME chaos_kill_loop_model
         COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python ${CMAKE_CURRENT_SOURCE_DIR}/chaos/kill_loop.py
                 --model ${CMAKE_SOURCE_DIR}/build/goldens/gemma3_tiny_gguf_q4_0/model.gguf --device cpu)
set_tests_properties(chaos_kill_loop_model PROPERTIES LABELS chaos TIMEOUT 3000 SKIP_RETURN_CODE 77 PROCESSORS 2
                     ENVIRONMENT "${e2e_environment}")
# Three hosts run under a schedule of faults, for one minute, and for ten under the label long. The checker has tests too, because a checker that
# finds no fault would pass every run.
add_test(NAME chaos_checker COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python -m pytest -q -rs -p no:cacheprovider
                                    ${CMAKE_CURRENT_SOURCE_DIR}/chaos/checker_test.py ${CMAKE_CURRENT_SOURCE_DIR}/chaos/hands_test.py
                                    ${CMAKE_CURRENT_SOURCE_DIR}/chaos/matrix_test.py)
add_test(NAME chaos_hosts COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/chaos/run --seed 5 --minutes 1)
add_test(NAME chaos_hosts_whole COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/chaos/run --minutes 10)
set_tests_properties(chaos_checker chaos_hosts chaos_hosts_whole PROPERTIES LABELS chaos TIMEOUT 3000
                     SKIP_RETURN_CODE 77 PROCESSORS 2 ENVIRONMENT "${e2e_environment}")
set_tests_properties(chaos_hosts_whole PROPERTIES LABELS long)
if(COX_SANITIZE)
  set_tests_properties(chaos_hosts PROPERTIES LABELS long)
else() # A preloaded library makes the wall clock jump. Sanitizer builds do not have it, because their own library must be loaded first.
  add_library(chaos_clock MODULE chaos/clock.c)
  target_link_libraries(chaos_clock PRIVATE ${CMAKE_DL_LIBS})
  add_library(disk_shim MODULE e2e/disk_shim.c) # this library simulates a failing disk for e2e/test_broken_disk.py
  target_link_libraries(disk_shim PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(chaos_clock disk_shim PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endif()

# Compares with the results of Hugging Face's own libraries (golden/tokenizers, golden/chat).
foreach(part tokenizers fast chat gguf spm)
  add_test(NAME golden_text_${part} COMMAND ${PYTHON3} ${CMAKE_CURRENT_SOURCE_DIR}/golden/text_golden.py
                                            --lib ${TEXT_TARGET}/release/libcoxtext.a ${part})
  set_tests_properties(golden_text_${part} PROPERTIES LABELS golden TIMEOUT 300 SKIP_RETURN_CODE 77)
  if(COX_SANITIZE) # the code is Rust, which gcc's sanitizers do not check
    set_tests_properties(golden_text_${part} PROPERTIES LABELS long)
  endif()
endforeach()

# Checks grammars with the JSON Schema Test Suite, and masks against those of llguidance. CI runs a part of the masks.
set(golden_masks golden/grammar_masks.py --lib ${TEXT_TARGET}/release/libcoxtext.a)
add_test(NAME golden_schema_suite COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python ${CMAKE_CURRENT_SOURCE_DIR}/golden/schema_suite.py
                                          --lib ${TEXT_TARGET}/release/libcoxtext.a)
add_test(NAME golden_grammar_masks_part COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python ${CMAKE_CURRENT_SOURCE_DIR}/${golden_masks}
                                                --vocabularies llama2,qwen3,gpt4o --grammars 12 --prefixes 30)
add_test(NAME golden_grammar_masks COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python ${CMAKE_CURRENT_SOURCE_DIR}/${golden_masks})
set_tests_properties(golden_schema_suite golden_grammar_masks_part PROPERTIES LABELS golden TIMEOUT 300 SKIP_RETURN_CODE 77)
set_tests_properties(golden_grammar_masks PROPERTIES LABELS long TIMEOUT 7200 SKIP_RETURN_CODE 77)
if(COX_SANITIZE) # the code is Rust, which gcc's sanitizers do not check
  set_tests_properties(golden_schema_suite golden_grammar_masks_part PROPERTIES LABELS long)
endif()
# Compares chat templates with Python's jinja2, which .venv has.
add_test(NAME golden_jinja COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/run_python ${CMAKE_CURRENT_SOURCE_DIR}/golden/jinja_golden.py
                                   --lib ${TEXT_TARGET}/release/libcoxtext.a)
set_tests_properties(golden_jinja PROPERTIES LABELS golden TIMEOUT 300 SKIP_RETURN_CODE 77 ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
if(COX_SANITIZE) # the code is Rust, which gcc's sanitizers do not check
  set_tests_properties(golden_jinja PROPERTIES LABELS long)
endif()

# The longest tests start first, so that none of them runs alone at the end. Costs are seconds of wall time on two cores, 2026-11-28.
function(cox_cost seconds)
  foreach(name ${ARGN})
    if(TEST ${name})
      set_tests_properties(${name} PROPERTIES COST ${seconds})
    endif()
  endforeach()
endfunction()
cox_cost(200 e2e_standby image_image)
cox_cost(100 e2e_elastic_model e2e_clients e2e_adapters k8s_rendered_processes chaos_kill_loop)
cox_cost(70 e2e_openapi e2e_cuda_emulated chaos_hosts)
cox_cost(50 docs_site e2e_tiny_models e2e_pull_parallel e2e_mixed_versions e2e_sagemaker_clients security_attacks chaos_kill_loop_model)
cox_cost(30 e2e_key_rotation e2e_pull e2e_rollout e2e_elastic_tp e2e_batches e2e_kv_transfers e2e_bad_input e2e_sagemaker bench_scripts
         first_run_scripts model_pair_explore_test)
