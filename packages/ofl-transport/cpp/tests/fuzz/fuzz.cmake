# The fuzz targets: libFuzzer where the compiler is clang, else the driver beside this file on GCC's coverage.  Included by
# the library's CMakeLists.txt with OFL_FUZZ; all of the library is built for fuzzing then.
option(OFL_FUZZ_LIBFUZZER "Fuzz with libFuzzer; needs clang" OFF)

set(fuzz ${CMAKE_CURRENT_LIST_DIR})
# -O1: a third of the build's time less than -O2, for about as many runs.
target_compile_options(ofl_core PUBLIC -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all)
target_link_options(ofl_core PUBLIC -fsanitize=address,undefined)
if(OFL_FUZZ_LIBFUZZER)
  set(coverage -fsanitize=fuzzer-no-link)
else()
  set(coverage -fsanitize-coverage=trace-pc)
endif()
target_compile_options(ofl_core PRIVATE ${coverage})
set_target_properties(ofl PROPERTIES EXCLUDE_FROM_ALL ON)  # the instrumentation has no home in it

add_library(ofl_fuzz_judge OBJECT ${fuzz}/stream.cpp ${fuzz}/harness.cpp)
target_link_libraries(ofl_fuzz_judge PUBLIC ofl_core)
# Apart from the instrumented library: it only writes frames.
add_executable(ofl_fuzz_seeds ${fuzz}/seeds.cpp cpp/wire.cpp)
target_include_directories(ofl_fuzz_seeds PRIVATE cpp cpp/include)
if(NOT OFL_FUZZ_LIBFUZZER)
  # Uninstrumented: the driver must not count its own branches.
  add_library(ofl_fuzz_driver OBJECT ${fuzz}/driver.cpp ${fuzz}/driver_mutate.cpp ${fuzz}/driver_frames.cpp)
  target_link_libraries(ofl_fuzz_driver PUBLIC ofl_core)
endif()

foreach(target frame_fuzz reader_fuzz segment_fuzz ring_fuzz shm_fuzz connection_fuzz client_fuzz planted_fuzz)
  add_executable(ofl_${target} ${fuzz}/${target}.cpp)
  target_compile_options(ofl_${target} PRIVATE ${coverage})
  target_link_libraries(ofl_${target} PRIVATE ofl_fuzz_judge ofl_core Threads::Threads ${CMAKE_DL_LIBS})
  if(OFL_FUZZ_LIBFUZZER)
    target_link_options(ofl_${target} PRIVATE -fsanitize=fuzzer)
  else()
    target_link_libraries(ofl_${target} PRIVATE ofl_fuzz_driver)
  endif()
endforeach()
