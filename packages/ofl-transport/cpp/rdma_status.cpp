#include "rdma_status.hpp"

#ifdef OFL_VERBS

namespace ofl {

const char* completion_clause(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "the peer's device did not acknowledge, whatever was sent again (IBV_WC_RETRY_EXC_ERR)";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "the peer's device had no receive posted (IBV_WC_RNR_RETRY_EXC_ERR)";
    case IBV_WC_WR_FLUSH_ERR:
      return "the queue pair went into error (IBV_WC_WR_FLUSH_ERR)";
    case IBV_WC_REM_ACCESS_ERR:
      return "the peer's device refused a write to the memory that the peer named (IBV_WC_REM_ACCESS_ERR)";
    case IBV_WC_REM_INV_REQ_ERR:
      return "the peer's device refused a request as invalid (IBV_WC_REM_INV_REQ_ERR)";
    case IBV_WC_REM_OP_ERR:
      return "the peer's device could not carry out a request (IBV_WC_REM_OP_ERR)";
    case IBV_WC_REM_ABORT_ERR:
      return "the peer's device aborted a request (IBV_WC_REM_ABORT_ERR)";
    case IBV_WC_LOC_LEN_ERR:
      return "the peer sent more than a receive takes (IBV_WC_LOC_LEN_ERR)";
    case IBV_WC_LOC_PROT_ERR:
      return "this device refused memory that is not registered (IBV_WC_LOC_PROT_ERR)";
    case IBV_WC_LOC_QP_OP_ERR:
      return "this device could not carry out a request (IBV_WC_LOC_QP_OP_ERR)";
    case IBV_WC_LOC_ACCESS_ERR:
      return "this device refused a write of the peer (IBV_WC_LOC_ACCESS_ERR)";
    case IBV_WC_BAD_RESP_ERR:
      return "the peer's device answered with something unexpected (IBV_WC_BAD_RESP_ERR)";
    case IBV_WC_RESP_TIMEOUT_ERR:
      return "the peer's device did not respond in time (IBV_WC_RESP_TIMEOUT_ERR)";
    case IBV_WC_FATAL_ERR:
      return "this device failed (IBV_WC_FATAL_ERR)";
    case IBV_WC_GENERAL_ERR:
      return "this device reported a failure of no further kind (IBV_WC_GENERAL_ERR)";
    default:
      return "this device reported a completion status that an RC queue pair does not have";
  }
}

}  // namespace ofl

#endif
