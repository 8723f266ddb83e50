// The smallest test frame that does: named cases, a check that says where it failed, a skip that says why, a report.
//
//     PROGRAM [--list] [--junit FILE] [CASE...]
//
// Exit status 0 if every case that ran held, 1 if one did not or none ran, 2 for an argument that is none.  A skipped case
// is counted apart: it neither held nor failed.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace check {

struct Case {
  const char* name;
  const char* file;
  void (*run)();
};

struct Result {
  const Case* test;
  double seconds = 0.0;
  std::vector<std::string> failures;
  std::string skipped;  // the reason; empty: it ran
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

// The case that runs now, which any thread may report to.
class Current {
 public:
  void begin(Result& result) {
    const std::scoped_lock lock(mutex_);
    result_ = &result;
  }
  void fail(const char* file, int line, const char* condition) {
    const std::scoped_lock lock(mutex_);
    std::string text = std::string(file) + ":" + std::to_string(line) + ": does not hold: " + condition;
    std::printf("%s\n", text.c_str());
    if (result_ != nullptr) result_->failures.push_back(std::move(text));
  }
  void skip(const std::string& reason) {
    const std::scoped_lock lock(mutex_);
    if (result_ != nullptr) result_->skipped = reason;
  }

 private:
  std::mutex mutex_;
  Result* result_ = nullptr;
};

inline Current& current() {
  static Current one;
  return one;
}

struct Register {
  Register(const char* name, const char* file, void (*run)()) { cases().push_back({name, file, run}); }
};

inline std::string escaped(const std::string& text) {
  std::string safe;
  for (const char letter : text) {
    switch (letter) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      default: safe += static_cast<unsigned char>(letter) < 0x20 && letter != '\n' ? '?' : letter;
    }
  }
  return safe;
}

// The class of a case in the report: its file's name without folder and suffix.
inline std::string class_of(const Case& test) {
  const std::string file = test.file;
  const std::size_t begin = file.rfind('/') + 1;  // npos + 1 is 0
  return file.substr(begin, file.rfind('.') - begin);
}

inline bool write_junit(const char* path, const std::vector<Result>& results, std::size_t failed, std::size_t skipped) {
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) return false;
  std::fprintf(file, "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<testsuites>\n");
  std::fprintf(file, "<testsuite name=\"cpp\" tests=\"%zu\" failures=\"%zu\" errors=\"0\" skipped=\"%zu\">\n", results.size(),
               failed, skipped);
  for (const Result& result : results) {
    std::fprintf(file, "<testcase classname=\"%s\" name=\"%s\" time=\"%.6f\">", class_of(*result.test).c_str(),
                 result.test->name, result.seconds);
    std::string text;
    for (const std::string& failure : result.failures) text += failure + "\n";
    if (!text.empty()) std::fprintf(file, "<failure message=\"a check does not hold\">%s</failure>", escaped(text).c_str());
    if (!result.skipped.empty()) std::fprintf(file, "<skipped message=\"%s\"/>", escaped(result.skipped).c_str());
    std::fprintf(file, "</testcase>\n");
  }
  std::fprintf(file, "</testsuite>\n</testsuites>\n");
  return std::fclose(file) == 0;
}

inline void run_case(Result& result) {
  current().begin(result);
  const auto begun = std::chrono::steady_clock::now();
  result.test->run();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  if (!result.failures.empty()) result.skipped.clear();  // what failed before it gave up has failed
  const char* const word = !result.failures.empty() ? "FAIL" : result.skipped.empty() ? "ok  " : "skip";
  std::printf("%s %s%s%s\n", word, result.test->name, result.skipped.empty() ? "" : ": ", result.skipped.c_str());
  std::fflush(stdout);
}

// The cases of those names, or all where there are none.
inline std::vector<Result> chosen(const std::vector<std::string>& names) {
  std::vector<Result> results;
  for (const Case& test : cases()) {
    if (names.empty() || std::find(names.begin(), names.end(), test.name) != names.end())
      results.push_back({&test, 0.0, {}, {}});
  }
  return results;
}

inline int run_all(std::vector<Result> results, const char* junit) {
  std::size_t failed = 0;
  std::size_t skipped = 0;
  for (Result& result : results) {
    run_case(result);
    failed += result.failures.empty() ? 0U : 1U;
    skipped += result.skipped.empty() ? 0U : 1U;
  }
  std::printf("%zu cases, %zu failures, %zu skipped\n", results.size(), failed, skipped);
  if (junit != nullptr && !write_junit(junit, results, failed, skipped)) {
    std::fprintf(stderr, "the report %s cannot be written: %s\n", junit, std::strerror(errno));
    return 1;
  }
  return failed == 0 && !results.empty() ? 0 : 1;
}

inline int main_of(int count, char** words) {
  const char* junit = nullptr;
  std::vector<std::string> wanted;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(words[i], "--list") == 0) {
      for (const Case& test : cases()) std::printf("%s.%s\n", class_of(test).c_str(), test.name);
      return 0;
    }
    if (std::strcmp(words[i], "--junit") == 0 && i + 1 < count) {
      junit = words[++i];
    } else if (words[i][0] == '-') {
      std::fprintf(stderr, "usage: %s [--list] [--junit FILE] [CASE...]\n", words[0]);
      return 2;
    } else {
      wanted.emplace_back(words[i]);
    }
  }
  std::vector<Result> results = chosen(wanted);
  if (!wanted.empty() && results.size() != wanted.size()) {
    std::fprintf(stderr, "%s: there is no such case, or one is named twice; --list shows them\n", words[0]);
    return 2;
  }
  return run_all(std::move(results), junit);
}

}  // namespace check

#define TEST(name)                                                       \
  static void name();                                                    \
  static const check::Register register_##name(#name, __FILE__, name);   \
  static void name()

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) check::current().fail(__FILE__, __LINE__, #condition);        \
  } while (false)

// Ends the case: what it needs is not here.  The reason is a clause that a reader can act on.
#define SKIP(reason)                  \
  do {                                \
    check::current().skip(reason);    \
    return;                           \
  } while (false)
