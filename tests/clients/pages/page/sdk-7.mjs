export { useChat } from '@ai-sdk/react';
export { DefaultChatTransport } from 'ai';
