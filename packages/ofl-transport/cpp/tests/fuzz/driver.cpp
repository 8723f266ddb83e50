// The fuzz driver for a compiler that has no libFuzzer: coverage from GCC's -fsanitize-coverage=trace-pc, mutations of
// driver_mutate.cpp, and of libFuzzer's options those that are used here, so that either is started alike:
//
//     TARGET [-max_total_time=SECONDS] [-seed=N] [-max_len=BYTES] [-timeout=SECONDS] [-artifact_prefix=PATH] FOLDER
//     TARGET FILE...
//
// With a folder: fuzz, starting from the files in it.  With files: run the target on each once.  The same seed makes the
// same inputs in the same order.  Must itself be compiled without coverage.

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fcntl.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/time.h>
#include <unistd.h>

#include "driver.hpp"

namespace {

constexpr std::size_t kBranches = 1U << 16;

std::array<std::uint8_t, kBranches> g_taken;  // in this run
std::array<std::uint8_t, kBranches> g_seen;   // a bit for each power of two, of all runs
std::array<std::uint32_t, kBranches> g_places;  // of what was taken in this run: few of all, so that a run costs what it takes
std::atomic<std::size_t> g_count{0};            // of them; threads of a target add too
std::uintptr_t g_before = 0;

// What the handlers of a dying process need: plain objects that are there before anything can go wrong.
const fuzz::Input* g_input = nullptr;
char g_prefix[4096] = "";
std::atomic<unsigned> g_runs{0};
unsigned g_seconds_max = 0;

std::uint64_t fingerprint(const fuzz::Input& input) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const std::uint8_t byte : input) hash = (hash ^ byte) * 0x100000001B3;
  return hash;
}

void save(const char* kind) {
  if (g_input == nullptr) return;
  char path[4200];
  std::snprintf(path, sizeof path, "%s%s-%016llx", g_prefix, kind,
                static_cast<unsigned long long>(fingerprint(*g_input)));
  const int file = ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool written = file >= 0 && ::write(file, g_input->data(), g_input->size()) == static_cast<ssize_t>(g_input->size());
  std::fprintf(stderr, "%s: %s\n", written ? "the input is in" : "the input could not be written to", path);
  g_input = nullptr;
}

void on_death() { save("crash"); }

void on_abort(int) {
  save("crash");
  ::_exit(77);
}

void on_tick(int) {
  static unsigned run = 0;
  static unsigned seconds = 0;
  const unsigned now = g_runs.load(std::memory_order_relaxed);
  seconds = now == run ? seconds + 1 : 0;
  run = now;
  if (g_input == nullptr || seconds <= g_seconds_max) return;
  std::fprintf(stderr, "one input has run for more than %u s\n", g_seconds_max);
  save("timeout");
  ::_exit(70);
}

}  // namespace

// Called by instrumented code at the beginning of every basic block.
extern "C" void __sanitizer_cov_trace_pc() {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)) -
                    reinterpret_cast<std::uintptr_t>(&LLVMFuzzerTestOneInput);  // wherever the program was loaded
  const std::uintptr_t mixed = here * 0x9E3779B97F4A7C15 >> 40;
  const std::size_t place = (mixed ^ g_before) % kBranches;
  std::uint8_t& taken = g_taken[place];
  if (taken == 0)
    if (const std::size_t count = g_count.fetch_add(1, std::memory_order_relaxed); count < kBranches)
      g_places[count] = static_cast<std::uint32_t>(place);
  if (taken < 255) ++taken;
  g_before = mixed >> 1;
}

namespace fuzz {

void Coverage::begin() noexcept {
  const std::size_t count = std::min(g_count.exchange(0), kBranches);
  for (std::size_t i = 0; i < count; ++i) g_taken[g_places[i]] = 0;
  g_before = 0;
}

std::size_t Coverage::news() noexcept {
  std::size_t fresh = 0;
  const std::size_t count = std::min(g_count.load(), kBranches);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t place = g_places[i];
    const std::uint8_t bit = std::bit_floor(g_taken[place]);
    if ((g_seen[place] & bit) == 0) ++fresh;
    g_seen[place] |= bit;
  }
  known_ += fresh;
  return fresh;
}

void watch(const std::string& prefix, unsigned seconds) {
  std::snprintf(g_prefix, sizeof g_prefix, "%s", prefix.c_str());
  g_seconds_max = seconds;
  __sanitizer_set_death_callback(on_death);
  std::signal(SIGABRT, on_abort);
  std::signal(SIGALRM, on_tick);
  const itimerval every_second{{1, 0}, {1, 0}};
  ::setitimer(ITIMER_REAL, &every_second, nullptr);
}

void run_one(const Input& input) {
  // A copy of its own, so that the sanitizer sees a read beyond it.
  const Input copy(input.begin(), input.end());
  g_input = &copy;
  g_runs.fetch_add(1, std::memory_order_relaxed);
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
  g_input = nullptr;
}

namespace {

struct Options {
  double seconds = 60;
  std::uint64_t seed = 0;
  std::size_t bytes_max = 1U << 17;
  unsigned timeout_seconds = 10;
  std::string prefix = "./";
  std::vector<std::string> paths;
};

bool parse(int count, char** words, Options& options) {
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const std::size_t sign = word.find('=');
    if (word[0] != '-') {
      options.paths.push_back(word);
      continue;
    }
    if (sign == std::string::npos) return false;
    const std::string name = word.substr(1, sign - 1);
    const std::string value = word.substr(sign + 1);
    if (name == "max_total_time") options.seconds = std::strtod(value.c_str(), nullptr);
    else if (name == "seed") options.seed = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "max_len") options.bytes_max = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "timeout") options.timeout_seconds = static_cast<unsigned>(std::strtoul(value.c_str(), nullptr, 10));
    else if (name == "artifact_prefix") options.prefix = value;
    else return false;
  }
  return !options.paths.empty() && options.bytes_max > 0;
}

Input read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int fuzz_from(const std::string& folder, const Options& options) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_regular_file()) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  Coverage coverage;
  std::vector<Input> corpus;
  const auto run = [&](Input input) {
    coverage.begin();
    run_one(input);
    if (coverage.news() > 0) corpus.push_back(std::move(input));
  };
  for (const std::filesystem::path& path : paths) run(read_file(path));
  if (corpus.empty()) {
    std::fprintf(stderr, "%s holds no input that reaches an instrumented branch\n", folder.c_str());
    return 1;
  }
  const std::size_t first = coverage.known();
  Random random(options.seed);
  const auto begun = std::chrono::steady_clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(); };
  while (passed() < options.seconds) {
    // Half of the time one of the newest, which reached what nobody had.
    const std::size_t newest = std::min<std::size_t>(corpus.size(), 16);
    const std::size_t pick = random() % 2 == 0 ? corpus.size() - 1 - random() % newest : random() % corpus.size();
    run(mutated(corpus[pick], corpus[random() % corpus.size()], options.bytes_max, random));
  }
  std::printf("%u runs in %.0f s, %zu inputs kept, %zu branch counts seen, %zu of them by the seeds\n", g_runs.load(),
              passed(), corpus.size(), coverage.known(), first);
  return 0;
}

}  // namespace

}  // namespace fuzz

int main(int count, char** words) {
  fuzz::Options options;
  if (!fuzz::parse(count, words, options)) {
    std::fprintf(stderr, "usage: %s [-max_total_time=S] [-seed=N] [-max_len=N] [-timeout=S] [-artifact_prefix=P] FOLDER | FILE...\n",
                 words[0]);
    return 2;
  }
  fuzz::watch(options.prefix, options.timeout_seconds);
  if (std::filesystem::is_directory(options.paths[0])) return fuzz::fuzz_from(options.paths[0], options);
  for (const std::string& path : options.paths) {
    const fuzz::Input input = fuzz::read_file(path);
    if (input.empty()) {
      std::fprintf(stderr, "%s is empty or cannot be read\n", path.c_str());
      return 2;
    }
    fuzz::run_one(input);
    std::printf("%s: %zu bytes, nothing broken\n", path.c_str(), input.size());
  }
  return 0;
}
