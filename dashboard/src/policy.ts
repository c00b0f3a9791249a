import { config } from 'zod';

// The SDK's schemas make code out of text to be faster, which the page's policy forbids; nothing here is checked by them.
config({ jitless: true });
