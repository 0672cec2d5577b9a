//! Inbox and Outbox against a queue.

use proptest::collection::vec;
use proptest::prelude::*;
use triwire_model::buffer::{Received, Sent, check_inbox, check_outbox};

fn count() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0_usize..6, 2 => 0_usize..40, 1 => Just(usize::MAX >> 8)]
}

proptest! {
    #[test]
    fn inbox_is_a_queue(
        size in 0_usize..24,
        script in vec(
            prop_oneof![
                count().prop_map(Received::Fill),
                count().prop_map(Received::Window),
                count().prop_map(Received::Lend),
                count().prop_map(Received::Consume),
            ],
            0..60,
        ),
    ) {
        check_inbox(size, &script);
    }

    #[test]
    fn outbox_is_a_queue(
        size in 0_usize..24,
        script in vec(
            prop_oneof![
                (0_usize..30).prop_map(Sent::Push),
                count().prop_map(Sent::Fill),
                count().prop_map(Sent::Send),
            ],
            0..60,
        ),
    ) {
        check_outbox(size, &script);
    }
}
