#include "ofl_library.hpp"

#include <atomic>
#include <cassert>
#include <mutex>
#include <string>

#include <dlfcn.h>

namespace engram {

namespace {

OflLibrary table;
std::atomic<bool> opened{false};
std::mutex opening;

struct Symbols {
  void* library;
  std::string missing;  // the first symbol that is not there

  template <typename Function>
  void find(const char* name, Function& function) {
    void* const symbol = ::dlsym(library, name);
    if (symbol == nullptr && missing.empty()) missing = name;
    function = reinterpret_cast<Function>(symbol);
  }
};

void find_both_sides(Symbols& symbols, OflLibrary& into) {
  symbols.find("ofl_buffer_create", into.buffer_create);
  symbols.find("ofl_buffer_base", into.buffer_base);
  symbols.find("ofl_buffer_free", into.buffer_free);
  symbols.find("ofl_body_free", into.body_free);
  symbols.find("ofl_counter_name", into.counter_name);
}

void find_client(Symbols& symbols, OflLibrary& into) {
  symbols.find("ofl_client_connect", into.client_connect);
  symbols.find("ofl_client_register", into.client_register);
  symbols.find("ofl_client_submit", into.client_submit);
  symbols.find("ofl_client_wait", into.client_wait);
  symbols.find("ofl_client_cancel", into.client_cancel);
  symbols.find("ofl_client_settled", into.client_settled);
  symbols.find("ofl_client_alive", into.client_alive);
  symbols.find("ofl_client_reason", into.client_reason);
  symbols.find("ofl_client_close", into.client_close);
  symbols.find("ofl_client_free", into.client_free);
}

void find_server(Symbols& symbols, OflLibrary& into) {
  symbols.find("ofl_server_create", into.server_create);
  symbols.find("ofl_server_listen", into.server_listen);
  symbols.find("ofl_server_register", into.server_register);
  symbols.find("ofl_server_next", into.server_next);
  symbols.find("ofl_server_reply", into.server_reply);
  symbols.find("ofl_server_idle", into.server_idle);
  symbols.find("ofl_server_disconnect", into.server_disconnect);
  symbols.find("ofl_server_wake", into.server_wake);
  symbols.find("ofl_server_counters", into.server_counters);
  symbols.find("ofl_server_close", into.server_close);
  symbols.find("ofl_server_free", into.server_free);
}

}  // namespace

Outcome open_ofl(const char* path) {
  const std::scoped_lock lock(opening);
  if (opened.load(std::memory_order_acquire)) return {};
  if (path == nullptr) return failure(ENGRAM_INVALID, "libofl: no path was given");
  void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return failure(ENGRAM_SYSTEM, std::string("libofl cannot be opened: ") + ::dlerror());
  Symbols symbols{library, {}};
  OflLibrary found{};
  symbols.find("ofl_abi_version", found.abi_version);
  if (symbols.missing.empty() && found.abi_version() != OFL_ABI_VERSION) {
    const std::string version = std::to_string(found.abi_version());
    ::dlclose(library);
    return failure(ENGRAM_SYSTEM, std::string(path) + " has ABI version " + version + "; version " +
                                      std::to_string(OFL_ABI_VERSION) + " is needed");
  }
  find_both_sides(symbols, found);
  find_client(symbols, found);
  find_server(symbols, found);
  if (!symbols.missing.empty()) {
    ::dlclose(library);
    return failure(ENGRAM_SYSTEM, std::string(path) + " has no " + symbols.missing);
  }
  table = found;  // the library stays open: its threads may outlive every handle of ours
  opened.store(true, std::memory_order_release);
  return {};
}

const OflLibrary* ofl_if_open() noexcept { return opened.load(std::memory_order_acquire) ? &table : nullptr; }

const OflLibrary& ofl() noexcept {
  assert(ofl_if_open() != nullptr);
  return table;
}

Outcome needs_ofl() {
  if (ofl_if_open() != nullptr) return {};
  return failure(ENGRAM_INVALID, "libofl is not open: call engram_library_open first");
}

}  // namespace engram
