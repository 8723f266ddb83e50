// The smallest test frame that does: named cases, a check that says where it failed, exit status 0 or 1.
#pragma once

#include <cstdio>
#include <vector>

namespace check {

struct Case {
  const char* name;
  void (*run)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Register {
  Register(const char* name, void (*run)()) { cases().push_back({name, run}); }
};

inline int run_all() {
  for (const Case& test : cases()) {
    const int before = failures();
    test.run();
    std::printf("%s %s\n", failures() == before ? "ok  " : "FAIL", test.name);
  }
  std::printf("%zu cases, %d failures\n", cases().size(), failures());
  return failures() == 0 ? 0 : 1;
}

}  // namespace check

#define TEST(name)                                               \
  static void name();                                            \
  static const check::Register register_##name(#name, name);     \
  static void name()

#define CHECK(condition)                                                     \
  do {                                                                       \
    if (!(condition)) {                                                      \
      std::printf("%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      ++check::failures();                                                   \
    }                                                                        \
  } while (false)
