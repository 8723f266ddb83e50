#include "verbs.hpp"

#ifdef OFL_VERBS

#include <dlfcn.h>

namespace ofl {

namespace {

// Finds one function after the other; the first that is missing decides.
class Finder {
 public:
  Finder(void* library, const char* name) noexcept : library_(library), name_(name) {}

  template <typename Function>
  void optional(Function*& entry, const char* symbol) noexcept {
    // dlsym gives an object pointer; POSIX guarantees that it holds a function's address.
    entry = reinterpret_cast<Function*>(::dlsym(library_, symbol));
  }

  template <typename Function>
  Finder& operator()(Function*& entry, const char* symbol) {
    optional(entry, symbol);
    if (entry == nullptr && outcome_)
      outcome_ = failure(OFL_SYSTEM, std::string(name_) + " has no " + symbol + ": it is too old for RDMA here");
    return *this;
  }

  Outcome outcome() && { return std::move(outcome_); }

 private:
  void* const library_;
  const char* const name_;
  Outcome outcome_;
};

}  // namespace

Outcome open_verbs(const char* library, Verbs& table) {
  void* const handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = ::dlerror();
    return failure(OFL_SYSTEM, std::string("RDMA needs libibverbs (Debian: libibverbs1 and ibverbs-providers): ") +
                                   (error != nullptr ? error : "it cannot be opened"));
  }
  Finder find(handle, library);
  find(table.get_device_list, "ibv_get_device_list")(table.free_device_list, "ibv_free_device_list");
  find(table.get_device_name, "ibv_get_device_name");
  find(table.open_device, "ibv_open_device")(table.close_device, "ibv_close_device");
  find(table.alloc_pd, "ibv_alloc_pd")(table.dealloc_pd, "ibv_dealloc_pd");
  find(table.query_device, "ibv_query_device")(table.query_port, "ibv_query_port");
  find(table.reg_mr, "ibv_reg_mr")(table.dereg_mr, "ibv_dereg_mr");
  find(table.create_comp_channel, "ibv_create_comp_channel");
  find(table.destroy_comp_channel, "ibv_destroy_comp_channel");
  find(table.create_cq, "ibv_create_cq")(table.destroy_cq, "ibv_destroy_cq");
  find(table.get_cq_event, "ibv_get_cq_event")(table.ack_cq_events, "ibv_ack_cq_events");
  find(table.create_qp, "ibv_create_qp")(table.modify_qp, "ibv_modify_qp")(table.destroy_qp, "ibv_destroy_qp");
  find(table.get_async_event, "ibv_get_async_event")(table.ack_async_event, "ibv_ack_async_event");
  find(table.fork_init, "ibv_fork_init");
  find.optional(table.is_fork_initialized, "ibv_is_fork_initialized");
  return std::move(find).outcome();
}

Outcome make_forks_safe(const Verbs& verbs) {
  if (verbs.is_fork_initialized != nullptr && verbs.is_fork_initialized() != IBV_FORK_DISABLED) return {};
  const int error = verbs.fork_init();
  if (error == 0) return {};
  return failure(OFL_SYSTEM,
                 "something else in this process used RDMA before and did not make it safe against fork() (" +
                     errno_text(error) + "); set IBV_FORK_SAFE=1 in the environment");
}

Outcome load_verbs(const Verbs*& verbs) {
  struct Loaded {
    Verbs table{};
    Outcome outcome = open_verbs(kVerbsLibrary, table);
  };
  static Loaded loaded;  // not const: a test puts failures into the table
  if (loaded.outcome) verbs = &loaded.table;
  return loaded.outcome;
}

}  // namespace ofl

#endif
