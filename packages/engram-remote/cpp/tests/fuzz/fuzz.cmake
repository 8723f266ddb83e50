# The fuzz targets: libFuzzer where the compiler is clang, else the transport's driver on GCC's coverage.  Included by the
# library's CMakeLists.txt with ENGRAM_FUZZ.  Of the library, what reads a peer's bytes is built for fuzzing.
option(ENGRAM_FUZZ_LIBFUZZER "Fuzz with libFuzzer; needs clang" OFF)
set(ENGRAM_FUZZ_HARNESS ${ENGRAM_OFL_INCLUDE}/../tests/fuzz CACHE PATH "Folder of the transport's harness.hpp and driver.hpp")

set(fuzz ${CMAKE_CURRENT_LIST_DIR})
# -O1: a third of the build's time less than -O2, for about as many runs.
set(sanitized -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all)
if(ENGRAM_FUZZ_LIBFUZZER)
  set(coverage -fsanitize=fuzzer-no-link)
else()
  set(coverage -fsanitize-coverage=trace-pc)
endif()

# What all of them are compiled with, as the library is.
add_library(engram_fuzz_options INTERFACE)
target_include_directories(engram_fuzz_options INTERFACE $<TARGET_PROPERTY:engram_core,INTERFACE_INCLUDE_DIRECTORIES>
                           ${ENGRAM_FUZZ_HARNESS})
target_compile_definitions(engram_fuzz_options INTERFACE $<TARGET_PROPERTY:engram_core,INTERFACE_COMPILE_DEFINITIONS>)
target_compile_options(engram_fuzz_options INTERFACE ${ENGRAM_WARNINGS} ${sanitized})
target_link_options(engram_fuzz_options INTERFACE -fsanitize=address,undefined)
target_link_libraries(engram_fuzz_options INTERFACE Threads::Threads)

# Without ofl_library.cpp: a twin of the transport stands in its place.
set(read request reply gather server_lookup client_frame client_connection client_settings client_staging
    peer_text checksum)
list(TRANSFORM read REPLACE "(.+)" "cpp/\\1.cpp")
add_library(engram_fuzz_core OBJECT ${read})
target_compile_options(engram_fuzz_core PRIVATE ${coverage})
target_link_libraries(engram_fuzz_core PUBLIC engram_fuzz_options)

# Apart from the instrumented library: the rules, what is asked and answered, and the twin.
add_library(engram_fuzz_judge OBJECT ${fuzz}/contract.cpp ${fuzz}/exchange.cpp ${fuzz}/fake_transport.cpp
            ${ENGRAM_FUZZ_HARNESS}/harness.cpp)
target_link_libraries(engram_fuzz_judge PUBLIC engram_fuzz_options)
add_executable(engram_fuzz_seeds ${fuzz}/seeds.cpp)
target_include_directories(engram_fuzz_seeds PRIVATE cpp ${ENGRAM_FUZZ_HARNESS})
if(NOT ENGRAM_FUZZ_LIBFUZZER)
  # Uninstrumented: the driver must not count its own branches.
  add_library(engram_fuzz_driver OBJECT ${ENGRAM_FUZZ_HARNESS}/driver.cpp ${ENGRAM_FUZZ_HARNESS}/driver_mutate.cpp
              ${fuzz}/driver_messages.cpp)
  target_link_libraries(engram_fuzz_driver PUBLIC engram_fuzz_options)
endif()

foreach(target request_fuzz rows_fuzz reply_fuzz connection_fuzz planted_fuzz)
  add_executable(engram_${target} ${fuzz}/${target}.cpp)
  target_compile_options(engram_${target} PRIVATE ${coverage})
  target_link_libraries(engram_${target} PRIVATE engram_fuzz_judge engram_fuzz_core)
  if(ENGRAM_FUZZ_LIBFUZZER)
    target_link_options(engram_${target} PRIVATE -fsanitize=fuzzer)
  else()
    target_link_libraries(engram_${target} PRIVATE engram_fuzz_driver)
  endif()
endforeach()
